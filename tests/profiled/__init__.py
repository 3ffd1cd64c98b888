"""Training scripts that know nothing of dataeff, and the slow data that they are fed."""
