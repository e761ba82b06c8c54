"""What every HTTP call has in common, whatever protocol it speaks: admission, identity, answers to errors."""
