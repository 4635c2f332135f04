"""What filler is made of: phrases of each kind of text, with places for words and numbers.

`~` is a word, `^` a number of three digits. A word stands after a blank or at the start of a line,
a number after a sign: there every tokenizer that we know cuts, so that a phrase has the same number
of tokens whatever fills it, and the numbers of phrases add up. (Each is counted by the server's own
tokenizer where it has one.) Phrases of prose begin with a blank and end with a full stop; those of
the other kinds begin at the start of a line and end with one.
"""

from __future__ import annotations

import json

WORD, NUMBER = "~", "^"

PROSE = (
    " The ~ of the ~ was ~, and nobody had asked why.",
    " In the ~ there is a ~ that holds more than one ~.",
    " She said that the ~ would not ~ before the next ~.",
    " Most people think of a ~ as something ~, but it is not.",
    " After the ~ came a long ~ with very little to ~ about.",
    " What would you ~ if the ~ were as ~ as it was last year?",
    " He put the ~ next to the ~ and waited.",
    " It took a ~ to see that both were ~ from the start.",
    " When the ~ is over, the ~ goes back to where it came from.",
    " Some of it is ~, some of it is only ~.",
    " They wrote about the ~ and the ~, about ~ and about time.",
    " Please tell me how a ~ can be made without any ~ at all.",
)

CODE = (
    'def ~(self, ~, ~=None):\n    if ~ is None:\n        raise ValueError("no ~ for this ~")\n'
    "    return ~ + ~\n\n",
    "class ~(object):\n    def __init__(self, ~, ~):\n        self.limit = ~\n"
    "        self.items = [ ~, ~]\n\n",
    "for ~ in range(^):\n    ~ += 1\n    if ~ > ~:\n        break\n\n",
    'try:\n    ~ = load( ~)\nexcept KeyError as ~:\n    log.warning("lost the ~ of %s", ~)\n\n',
    "from ~ import ~\n\n",
    "# The ~ of a ~ is the last ~ that was written before it.\n",
    "while ~ and not ~:\n    ~ = next( ~)\n    total += wait(limit=^)\n\n",
    'assert ~ == ~, "the ~ must be a ~"\n\n',
    "async def ~(self, ~, *, limit=^):\n    async with session.get( ~) as ~:\n"
    "        return await ~.json()\n\n",
    "with lock:\n    ~ = cache.get( ~)\n    cache.set( ~, ~, ttl=^)\n\n",
)

LOG = (
    'level=info ts=2026-03-14T09:26:53.^Z caller=worker.go:^ msg="new ~ for ~" took=^ms\n',
    'level=warn ts=2026-03-14T09:26:54.^Z caller=queue.go:^ msg="the ~ is full" waiting=^\n',
    'level=error ts=2026-03-14T09:26:55.^Z caller=store.go:^ msg="no ~ in ~" code=^\n',
    '10.0.^.^ - - "GET /api/v2/items/^?limit=^ HTTP/1.1" status=200 bytes=^ agent= ~\n',
    '10.0.^.^ - - "POST /api/v2/orders HTTP/1.1" status=409 bytes=^ reason= ~\n',
    "~[^]: started ~ with pid=^, memory=^M\n",
    "~[^]: the ~ did not ~ within=^ms, trying the next ~\n",
    "WARN pool-^ thread-^ db.Session: slow query=^ms on table ~ join ~\n",
    'Traceback: File "worker.py", line=^, in ~ from ~\n',
)


def _tool(name: str, description: str, required: int, **parameters: str) -> str:
    """A tool's declaration, one line of JSON as the chat templates of tool users write it. The
    first `required` parameters must be given; each has its type, and what it means where told."""
    properties = {}
    for parameter, told in parameters.items():
        kind, _, meaning = told.partition(": ")
        properties[parameter] = {"type": kind} | ({"description": meaning} if meaning else {})
    schema = {"type": "object", "properties": properties, "required": [*parameters][:required]}
    function = {"name": name, "description": description, "parameters": schema}
    return json.dumps({"type": "function", "function": function}) + "\n"


SCHEMA = (
    _tool("read_file", "Reads the ~ of a ~ and gives its text.", 1,
          path="string: The ~ to read.", limit="integer: Most lines of the ~ to give."),
    _tool("search_code", "Finds every ~ that holds a ~.", 1,
          query="string: What the ~ must hold.", match_case="boolean"),
    _tool("list_events", "Lists the ~ between two days, the next ~ first.", 2,
          start="string", end="string", label="string: Only those of this ~."),
    _tool("set_state", "Turns a ~ in the ~ on or off.", 2,
          entity="string: Name of the ~.", on="boolean: False turns the ~ off."),
    _tool("send_message", "Sends a ~ to one ~.", 2,
          to="string", text="string: The ~, as plain text."),
    _tool("query_table", "Counts each ~ of a table by its ~.", 1,
          table="string", where="string: What every ~ must be.", limit="integer"),
    _tool("get_time", "Tells the ~ of a ~.", 1, zone="string"),
)  # fmt: skip

PHRASES: dict[str, tuple[str, ...]] = {"prose": PROSE, "code": CODE, "log": LOG, "schema": SCHEMA}
"""By `Segment.kind`. Tool schemas stand one a line, as chat templates write them."""
