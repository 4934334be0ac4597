"""Reading requests and writing answers, the same for all three APIs."""

import msgspec
from aiohttp import web

from kinema_sim.api.errors import ApiError
from kinema_sim.engine.objects import Obj


def reply(body: object, *, status: int = 200) -> web.Response:
    """Answer with JSON."""
    return web.Response(body=msgspec.json.encode(body), status=status, content_type="application/json")


def no_such_page() -> web.Response:
    """Answer 404 without a `Status`: an API server for what it does not serve, a load balancer for anything."""
    return web.Response(text="404 page not found\n", status=404)


async def read_json(request: web.Request) -> object:
    """Read the body as JSON; an empty body is an empty object. YAML that is JSON passes, as the client sends it.

    Raises:
        ApiError: 400 when the body is no JSON.
    """
    raw = await request.read()
    if not raw:
        return {}
    try:
        decoded: object = msgspec.json.decode(raw)
    except msgspec.DecodeError as error:
        raise ApiError(400, f"the body is no JSON: {error}") from error
    return decoded


async def read_object(request: web.Request) -> Obj:
    """Read the body as a JSON object.

    Raises:
        ApiError: 400 when it is something else.
    """
    body = await read_json(request)
    if not isinstance(body, dict):
        raise ApiError(400, "the body is no JSON object")
    return body


def flag(request: web.Request, name: str) -> bool:
    """Read a yes-or-no parameter of the query."""
    return request.query.get(name, "") in ("true", "1")


def number(request: web.Request, name: str, default: int = 0) -> int:
    """Read a whole number of the query.

    Raises:
        ApiError: 400 when it is none.
    """
    text = request.query.get(name, "")
    if not text:
        return default
    try:
        return int(text)
    except ValueError as error:
        raise ApiError(400, f"the parameter {name} is no number: {text!r}") from error
