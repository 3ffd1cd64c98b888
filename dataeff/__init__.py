"""dataeff: what does the data cost us, and how do we pay less?"""
