"""The same load under static, dynamic and continuous batching, as one table of measured figures."""
