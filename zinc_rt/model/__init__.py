"""Model files, tokenizers, chat templates, and one file per architecture that emits IR."""
