"""A generated access log that looks real: busy and quiet hours, a few popular pages, some errors."""

import csv
import random
from datetime import UTC, datetime, timedelta
from pathlib import Path

COLUMNS = ["time", "host", "method", "path", "status", "bytes", "referrer", "agent"]
AGENTS = ["Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/126.0.0.0 Safari/537.36",
          "Mozilla/5.0 (iPhone; CPU iPhone OS 17_5 like Mac OS X) AppleWebKit/605.1.15 Mobile/15E148 Safari/604.1",
          "curl/8.5.0", "Googlebot/2.1 (+http://www.google.com/bot.html)"]
PAGES = ["/", "/login", "/cart", "/search?q=blue,green", "/img/logo.svg", "/api/v1/items", "/häuser/größe", '/a"b']
START = datetime(2026, 11, 20, 22, tzinfo=UTC)


def rows(count: int, seed: int = 7):
    """count rows, the same for the same seed."""
    chance = random.Random(seed)
    moment = START
    for number in range(count):
        moment += timedelta(milliseconds=chance.expovariate(1 / (40 + 30 * (moment.hour % 3))))
        page = PAGES[min(int(chance.expovariate(0.6)), len(PAGES) - 1)]
        yield [moment.isoformat(timespec="milliseconds"), f"10.{number % 7}.{chance.randrange(256)}.{chance.randrange(256)}",
               chance.choices(["GET", "POST", "HEAD"], [90, 8, 2])[0], page,
               chance.choices([200, 304, 404, 500], [85, 8, 5, 2])[0], int(chance.lognormvariate(7, 1.5)),
               chance.choice(["", "https://example.org/"]), chance.choices(AGENTS, [5, 3, 1, 1])[0]]


def write(path: Path, count: int) -> Path:
    """As CSV with a header."""
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(COLUMNS)
        writer.writerows(rows(count))
    return path
