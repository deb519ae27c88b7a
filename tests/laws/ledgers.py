"""What tests of ledgers look at."""

import sqlite3


def spy_on(patch, owner, name, before):
    original = getattr(owner, name)

    def spied(*arguments, **named):
        before(name)
        return original(*arguments, **named)

    patch.setattr(owner, name, spied)


def content_without_times(path):
    with sqlite3.connect(path) as connection:
        tables = [
            row[0]
            for row in connection.execute(
                "SELECT name FROM sqlite_master WHERE type = 'table'"
            )
        ]
        content = {}
        for table in sorted(tables):
            rows = connection.execute(f"SELECT * FROM {table}")
            names = [column[0] for column in rows.description]
            dropped = {"created", "charged_at", "released_at"}
            content[table] = [
                {k: v for k, v in zip(names, row, strict=True) if k not in dropped}
                for row in rows
            ]
    connection.close()
    return content
