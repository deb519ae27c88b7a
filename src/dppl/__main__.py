"""`python -m dppl` is the command `dppl`."""

from dppl.cli.main import run

if __name__ == "__main__":
    run()
