"""How a fit is chosen: candidates, one model of answers, one measure of features, one rule."""
