"""What tests share: servers, clients, services, workers, planted faults. No test module is imported by another."""
