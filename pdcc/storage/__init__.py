"""Files, saved models, run directories, and journals of long studies."""
