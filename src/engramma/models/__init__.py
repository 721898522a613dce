"""In your own code: a scikit-learn classifier, a PyTorch layer, a guard for any module, a memory."""
