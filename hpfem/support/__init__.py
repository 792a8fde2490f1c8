"""What every floor may use: registries, files, caches, logging, progress, the machine."""
