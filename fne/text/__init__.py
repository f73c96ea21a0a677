"""Captions as numbers: tokenizer, vocabulary, tokens and pretrained word vectors."""
