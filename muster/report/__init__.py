"""The page of a run: one HTML file that holds everything it shows.

`make_page` makes its contents, `render` draws them. Both are pure: the control plane collects their input when a run is
settled, and a client at any time. They need only the contract and the standard library, so a Lambda function can draw
the page.
"""
