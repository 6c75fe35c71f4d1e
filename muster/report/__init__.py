"""The page of a run: one HTML file that holds everything it shows.

`make_page` says what the page tells, `render` draws it. Both are pure; who collects what they need (the control plane
when a run is settled, a client at any time) is elsewhere. Nothing but the contract and the standard library is needed,
so the page fits into a Lambda function.
"""
