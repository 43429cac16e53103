"""Grammar-constrained answers: token masks computed by llguidance."""
