"""The packages of the wheel: those of `fne`, and two that stand outside it in this repository.

`stages/` is installed as `fne.stages`, so that an environment gets no package of that general name. What
a new project is made of stands in the root, and is installed as the data of `fne.shipped`.
"""

from setuptools import find_packages, setup
from setuptools.command.build_py import build_py

SHIPPED = "fne.shipped"


class BuildPackages(build_py):
    """Copy no Python file of the root: `fne.shipped` has data only."""

    def find_package_modules(self, package: str, package_dir: str) -> list[tuple[str, str, str]]:
        """Return the modules of a package."""
        return [] if package == SHIPPED else super().find_package_modules(package, package_dir)


setup(
    packages=[*find_packages(include=["fne", "fne.*"]), "fne.stages", SHIPPED],
    package_dir={"fne.stages": "stages", SHIPPED: "."},
    cmdclass={"build_py": BuildPackages},
)
