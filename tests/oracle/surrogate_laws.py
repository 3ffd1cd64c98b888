"""Slow, obvious surrogates and caps: formulas as printed, explicit inverses, one entry at a time."""

from __future__ import annotations

import math

import numpy as np


def matern(left, right, lengths):
    """Rasmussen and Williams 2006, equation 4.17 with nu = 5/2, for two points."""
    r = math.sqrt(sum(((a - b) / length) ** 2 for a, b, length in zip(left, right, lengths, strict=True)))
    return (1 + math.sqrt(5) * r + 5 * r**2 / 3) * math.exp(-math.sqrt(5) * r)


def process(points, heights, places, lengths, noise):
    """Mean, standard deviation and negative log likelihood of a process whose mean and signal are the likeliest."""
    n = len(points)
    covariance = np.array([[matern(a, b, lengths) for b in points] for a in points]) + noise * np.eye(n)
    inverse = np.linalg.inv(covariance)
    ones = np.ones(n)
    mean = ones @ inverse @ heights / (ones @ inverse @ ones)
    off = heights - mean
    signal = off @ inverse @ off / n
    cross = np.array([[matern(a, b, lengths) for b in points] for a in places])
    variance = [signal * (1 + noise - row @ inverse @ row) for row in cross]
    likelihood = -n / 2 * math.log(2 * math.pi * signal) - 0.5 * np.linalg.slogdet(covariance)[1] - n / 2
    return mean + cross @ inverse @ off, np.sqrt(variance), -likelihood


def capped(weights, limits):
    """The s at which the sum of min(cap, s w) is 1, by bisection; weights all above 0."""
    low, high = 0.0, 1e18
    for _ in range(300):
        middle = (low + high) / 2
        total = sum(min(cap, middle * weight) for weight, cap in zip(weights, limits, strict=True))
        low, high = (middle, high) if total < 1 else (low, middle)
    return [min(cap, high * weight) for weight, cap in zip(weights, limits, strict=True)]
