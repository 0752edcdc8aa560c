"""What people do with the state of stopped or running workers: list, show, export, import, reset, verify.

Everything goes through the port: the same code serves the state topic of a broker and the table of an output folder.
Reading needs no membership. What writes takes a *seat* first: it joins the group as its only member, so that no worker
can come in between, and commits as a worker does.
"""
