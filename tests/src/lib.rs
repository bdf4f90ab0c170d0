//! Black-box tests that drive the built programs.
