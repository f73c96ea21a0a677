"""The Python interface: what `import fne` offers to scripts and notebooks."""
