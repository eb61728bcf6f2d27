"""The package `stark_fitted`: a text that `fit` copies beside the winners; never imported here."""
