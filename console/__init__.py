"""The web console: what people of a team do in a browser, over the job database that the commands use.

app          navigation and nothing else; app_pages: one file a page; components: what several pages show alike
context      the one place that opens the database, and who looks
services     what pages ask for; they import no streamlit and no torch, and commands may use them too
settings     how it is configured; theme, options: what the server is told; server: the process that serves it
"""
