"""The command line, `dppl`: one file a command group. It reads, calls the library and prints; it computes nothing."""
