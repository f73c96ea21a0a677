"""What every package uses: errors, parameters, files, locks, signals, devices, processes and DVC."""
