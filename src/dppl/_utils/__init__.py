"""What every room uses: checks of parameters, files, extras, progress and types."""
