"""What both coordinators must do, each for itself and against a model of ownership (G14, G15)."""
