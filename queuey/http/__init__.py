"""What all HTTP calls share in every protocol: admission, identity, errors."""
