"""The file of an HTML form (`multipart/form-data`), as `curl -F file=@photo.jpg` sends it.

Only a form with a single field is read, and no header of the field is looked at, so there is little that a
request could do wrong.
"""

import re

from fne.core.errors import InputError

MAX_HEADERS = 4096  # bytes, of the field
BOUNDARY = re.compile(r"""boundary=(?:"([0-9A-Za-z'()+_,./:=? -]{1,70})"|([0-9A-Za-z'+_.-]{1,70}))""", re.I)


def form_file(content_type: str, body: bytes) -> bytes:
    r"""Return the content of the only field of a form, or the body itself if it is not a form.

    Example:
        >>> form_file("multipart/form-data; boundary=x", b"--x\r\nA: b\r\n\r\ncontent\r\n--x--\r\n")
        b'content'
        >>> form_file("image/jpeg", b"content")
        b'content'
    """
    kind, _, parameters = content_type.partition(";")
    if kind.strip().lower() != "multipart/form-data":
        return body
    found = BOUNDARY.fullmatch(parameters.strip())
    if not found:
        raise InputError("the form names no boundary; send the content of an image file as the body")
    line = b"--" + (found[1] or found[2]).encode()
    blank = body.find(b"\r\n\r\n", 0, MAX_HEADERS)
    end = body.find(b"\r\n" + line, blank + 2)
    if not body.startswith(line + b"\r\n") or blank < 0 or end < 0:
        raise InputError("the form is not complete; send it again")
    if body[end + 2 + len(line) :].strip() != b"--":
        raise InputError("the form has several fields; send one photo at a time, and nothing else")
    return body[blank + 4 : end]
