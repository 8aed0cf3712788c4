"""
Codecs: JSON, YAML and protobuf as the API server decodes them.
"""
