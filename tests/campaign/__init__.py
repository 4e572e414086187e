"""A seeded campaign of bad inputs, damaged files, kills and repetitions against every public entry point: `make campaign`.

An attempt may end in one of two ways: it works, and what comes out holds together; or one typed error says what to do.
Everything else is a fault. Every attempt is named by (part, seed, number) and can be repeated alone.
"""
