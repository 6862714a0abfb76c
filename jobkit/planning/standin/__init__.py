"""The stand-in model: a Stanza tokenizer and tagger, trained on generated text."""
