"""
Codecs: between objects as the API has them and values of the users' classes.
"""
