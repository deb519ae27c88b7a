"""A store that speaks as much of the S3 protocol as reading a folder takes, and counts the bytes that it sends."""

import re
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape


class Store(ThreadingHTTPServer):
    """Objects of one bucket by key."""

    daemon_threads = True

    def __init__(self):
        super().__init__(("127.0.0.1", 0), _Handler)
        self.objects = {}
        self.sent = 0

    def put(self, folder, prefix):
        """Take in all files of a folder of this machine."""
        for file in folder.rglob("*"):
            if file.is_file():
                self.objects[f"{prefix}/{file.relative_to(folder).as_posix()}"] = (
                    file.read_bytes()
                )

    def url(self, key):
        """Return where Arrow finds a file or folder; the password opens nothing."""
        return f"s3://reader:topsecret@bucket/{key}?scheme=http&endpoint_override=127.0.0.1:{self.server_port}"


@contextmanager
def running_store():
    """Run a store as long as the block lasts."""
    with Store() as store:
        thread = threading.Thread(target=store.serve_forever, daemon=True)
        thread.start()
        try:
            yield store
        finally:
            store.shutdown()
            thread.join()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = (
        -1
    )  # head and body of an answer in one packet, or each waits for the other's receipt

    def log_message(self, *_):
        pass

    def do_HEAD(self):
        self.do_GET()

    def do_GET(self):
        where = urlsplit(self.path)
        _, bucket, key = [*unquote(where.path).split("/", 2), ""][:3]
        if bucket == "bucket" and not key and "list-type" in where.query:
            self._answer(200, _listing(self.server.objects, parse_qs(where.query)))
        elif bucket == "bucket" and key in self.server.objects:
            self._send(self.server.objects[key])
        else:
            self._answer(404, b"")

    def _send(self, content):
        found = re.fullmatch(r"bytes=([0-9]+)-([0-9]+)", self.headers.get("Range", ""))
        first, last = (
            (int(found[1]), min(int(found[2]), len(content) - 1))
            if found
            else (0, len(content) - 1)
        )
        extra = (
            {"Content-Range": f"bytes {first}-{last}/{len(content)}"} if found else {}
        )
        self._answer(206 if found else 200, content[first : last + 1], extra)

    def _answer(self, status, content, extra=None):
        self.send_response(status)
        headers = {
            "Content-Length": len(content),
            "ETag": '"e"',
            "Last-Modified": "Wed, 01 Jan 2025 00:00:00 GMT",
        }
        for name, value in {**headers, **(extra or {})}.items():
            self.send_header(name, str(value))
        self.end_headers()
        if self.command == "GET":
            self.server.sent += len(content)
            self.wfile.write(content)


def _listing(objects, query):
    """Return the answer of ListObjectsV2, in an order that is not that of names as people read them."""
    prefix = query.get("prefix", [""])[0]
    keys = sorted(key for key in objects if key.startswith(prefix))
    deep = {key for key in keys if query.get("delimiter") and "/" in key[len(prefix) :]}
    folders = sorted({prefix + key[len(prefix) :].split("/")[0] + "/" for key in deep})
    files = [
        f"<Contents><Key>{escape(key)}</Key><Size>{len(objects[key])}</Size><ETag>e</ETag>"
        "<LastModified>2025-01-01T00:00:00.000Z</LastModified></Contents>"
        for key in keys
        if key not in deep
    ]
    inner = [
        f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
        for folder in folders
    ]
    body = f"<KeyCount>{len(files) + len(inner)}</KeyCount><IsTruncated>false</IsTruncated>{''.join(files + inner)}"
    space = "http://s3.amazonaws.com/doc/2006-03-01/"
    return f'<?xml version="1.0"?><ListBucketResult xmlns="{space}">{body}</ListBucketResult>'.encode()
