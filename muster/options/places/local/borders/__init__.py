"""MiniStack where calls cross the borders of accounts and regions: it refuses what AWS refuses, and lets through what
both sides allow."""
