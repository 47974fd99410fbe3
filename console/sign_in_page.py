"""The page on which people sign in: plain HTML, served before anything of Streamlit's."""

from __future__ import annotations

import html

_STYLE = """
:root { color-scheme: light dark; --back: #f3f6f7; --card: #fff; --text: #0a0f12; --line: #c3ced2; --accent: #0b7a75;
  --wrong: #a3182d; }
@media (prefers-color-scheme: dark) { :root { --back: #13181b; --card: #1d2428; --text: #e6ecef; --line: #4a575e;
  --accent: #12837d; --wrong: #ff9aa8; } }
body { margin: 0; min-height: 100vh; display: grid; place-items: center; background: var(--back); color: var(--text);
  font: 16px/1.5 "Source Sans 3", "Source Sans Pro", system-ui, sans-serif; }
main { width: min(22rem, calc(100vw - 4rem)); background: var(--card); border: 1px solid var(--line);
  border-radius: .5rem; padding: 2rem; }
h1 { font-size: 1.35rem; margin: 0 0 1rem; }
label { display: block; margin-bottom: .35rem; }
input { box-sizing: border-box; width: 100%; font: inherit; padding: .5rem .65rem; border: 1px solid var(--line);
  border-radius: .4rem; background: var(--back); color: inherit; }
button { margin-top: 1rem; width: 100%; font: inherit; font-weight: 600; padding: .55rem; border: 0;
  border-radius: .4rem; background: var(--accent); color: #fff; cursor: pointer; }
.wrong { color: var(--wrong); margin: 0 0 1rem; }
"""
POLICY = "default-src 'none'; style-src 'unsafe-inline'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'"


def sign_in_page(*, goes_to: str, problem: str | None = None) -> str:
    """goes_to: a path of the console, opened afterwards. problem: why the last try was refused."""
    told = f'<p class="wrong" role="alert">{html.escape(problem)}</p>' if problem else ""
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Sign in · mmrl</title><style>{_STYLE}</style></head>
<body><main><h1>Sign in to mmrl</h1>{told}
<form method="post" action="sign-in"><input type="hidden" name="goes_to" value="{html.escape(goes_to, quote=True)}">
<label for="secret">Password or access token</label>
<input id="secret" name="secret" type="password" autocomplete="current-password" autofocus required>
<button>Sign in</button></form></main></body></html>"""
