"""Pages in a real browser: what they say and ask for, whether they fit, and what axe-core finds.

`pip install -e '.[test-browser]'` brings Playwright and axe-core; Chromium is that of
the system. As a program, this says where it is.
"""

import shutil
import sys
from pathlib import Path

WIDE = {"width": 1280, "height": 900}
NARROW = {"width": 380, "height": 800}


def chromium():
    """Return the path of the system's Chromium, or None."""
    return next(
        filter(
            None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
        ),
        None,
    )


class Visit:
    """A page with all that it said and asked for."""

    def __init__(self, page, place):
        self.page = page
        self.said = []
        self.asked = []
        page.on("console", lambda message: self.said.append(message.text))
        page.on("pageerror", lambda error: self.said.append(str(error)))
        page.on("request", lambda request: self.asked.append(request.url))
        page.goto(place.as_uri() if isinstance(place, Path) else place)

    def violations(self):
        """Return the rules of axe-core that the page breaks, and where."""
        from axe_playwright_python.sync_playwright import Axe

        found = Axe().run(self.page).response["violations"]
        return {
            one["id"]: [node["target"] for node in one["nodes"]][:5] for one in found
        }

    def overflow(self):
        """Return by how many pixels the page is wider than the window."""
        return self.page.evaluate(
            "document.documentElement.scrollWidth - window.innerWidth"
        )

    def unfold(self):
        self.page.evaluate(
            "document.querySelectorAll('details').forEach(fold => { fold.open = true })"
        )

    def reached(self, presses):
        """Return the names of what the tabulator reaches, in order."""
        named = "document.activeElement.ariaLabel || document.activeElement.textContent.trim()"
        found = []
        for _ in range(presses):
            self.page.keyboard.press("Tab")
            found.append(self.page.evaluate(named))
        return found


if __name__ == "__main__":
    if chromium() is None:
        sys.exit("There is no Chromium on this machine.")
    print(chromium())
