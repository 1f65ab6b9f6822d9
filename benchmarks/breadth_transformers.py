"""Architectures of transformers, each from a small configuration, with what its own processor would give."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

TOKENS, WORDS = 16, 128
_NAMES = """
    albert audio-spectrogram-transformer bart beit bert bloom clip codegen convnext dac deberta deberta-v2
    deit dinov2 distilbert electra encodec falcon fnet funnel gemma gemma2 gpt2 gpt_bigcode gpt_neo
    gpt_neox gptj hubert layoutlm llama longformer mamba marian mbart mistral mixtral mobilebert
    modernbert mpnet mpt mt5 olmo opt phi qwen2 qwen2_moe qwen3 roberta roformer segformer squeezebert
    stablelm swin t5 videomae vit vit_mae wav2vec2 whisper xlm-roberta xlnet
"""
ARCHITECTURES = _NAMES.split()
# What makes a configuration small, by the names that configurations use.
_SMALL: dict[str, Any] = {
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size", "word_embed_proj_dim"), 64),
    **dict.fromkeys(("num_hidden_layers", "n_layers", "n_layer", "num_layers", "num_decoder_layers"), 2),
    **dict.fromkeys(("encoder_layers", "decoder_layers"), 2),
    **dict.fromkeys(("num_attention_heads", "n_heads", "n_head", "num_heads"), 4),
    **dict.fromkeys(("encoder_attention_heads", "decoder_attention_heads"), 4),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "hidden_dim", "d_ff", "d_inner", "ffn_hidden_size"), 128
    ),
    **dict.fromkeys(("encoder_ffn_dim", "decoder_ffn_dim", "moe_intermediate_size"), 128),
    **dict.fromkeys(("shared_expert_intermediate_size",), 128),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len", "max_2d"), 64),
    **dict.fromkeys(("head_dim", "d_kv", "d_head", "rotary_dim", "projection_dim"), 16),
    **dict.fromkeys(("num_experts", "num_local_experts"), 4),
    "num_key_value_heads": 2,
    "vocab_size": WORDS,
    "image_size": 64,
    "num_experts_per_tok": 2,
    "num_conv_pos_embeddings": 16,
    "num_conv_pos_embedding_groups": 4,
    "window_size": 4,
}
# What a few need beside or instead.
_OWN: dict[str, dict[str, Any]] = {
    "audio-spectrogram-transformer": {"max_length": 64, "num_mel_bins": 32},
    "convnext": {"hidden_sizes": [16, 32, 48, 64], "depths": [1, 1, 2, 1]},
    "clip": {"text_config": {"projection_dim": 16}, "vision_config": {"projection_dim": 16}},
    "distilbert": {"dim": 64, "hidden_dim": 128},
    "funnel": {"architectures": ["FunnelModel"], "block_sizes": [2, 2], "d_model": 64, "d_head": 16},
    "gpt_neo": {"attention_types": [[["global", "local"], 1]]},
    "hubert": {"conv_dim": (16,) * 7},
    "longformer": {"attention_window": 8},
    "mobilebert": {"intra_bottleneck_size": 32, "true_hidden_size": 32, "embedding_size": 32},
    "segformer": {"hidden_sizes": [16, 32, 40, 64], "depths": [1, 1, 1, 1], "decoder_hidden_size": 32},
    "swin": {"embed_dim": 32, "depths": [2, 2], "num_heads": [2, 4], "hidden_size": 64},
    "vit_mae": {"decoder_hidden_size": 32, "decoder_num_hidden_layers": 1, "decoder_intermediate_size": 64},
    "videomae": {"num_frames": 4, "decoder_hidden_size": 32, "decoder_intermediate_size": 64},
    "wav2vec2": {"conv_dim": (16,) * 7, "codevector_dim": 16, "num_codevectors_per_group": 8},
    "whisper": {"num_mel_bins": 16, "max_source_positions": 32, "max_target_positions": 32},
}
_TOKEN_NAMES = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id", "sep_token_id")


def made(name: str) -> tuple[nn.Module, dict[str, Any]]:
    """The network in evaluation mode and its inputs by name, the mask among them where it takes one."""
    import transformers

    transformers.logging.set_verbosity_error()
    config = transformers.AutoConfig.for_model(name, **_small(transformers, name))
    model = transformers.AutoModel.from_config(config).eval()
    return model, _inputs(model, config)


def _small(transformers: Any, name: str) -> dict[str, Any]:
    """The options of a small configuration: of the names above those that it has, and its own."""
    own = dict(_OWN.get(name, {}))
    default = transformers.CONFIG_MAPPING[name]().to_dict()
    known = set(default) | set(transformers.CONFIG_MAPPING[name].attribute_map)
    options = {key: value for key, value in _SMALL.items() if key in default and _is_count(default[key])}
    if default.get("head_dim") is None:
        options.pop("head_dim", None)
    for part in ("text_config", "vision_config"):
        if part in known:
            inner = default.get(part) or {}
            small = {key: value for key, value in _SMALL.items() if key in inner and _is_count(inner[key])}
            options[part] = {**small, **own.pop(part, {})}
    tokens = {key: 1 for key in _TOKEN_NAMES if isinstance(default.get(key), int)}
    return {**options, **tokens, **own}


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _inputs(model: nn.Module, config: Any) -> dict[str, Any]:
    """As a tokenizer or an image processor gives them: a mapping with attributes."""
    from transformers import BatchEncoding

    generator = torch.Generator().manual_seed(1)
    ids = torch.randint(2, WORDS, (2, TOKENS), generator=generator)
    name = str(model.main_input_name)
    if config.model_type == "clip":
        images = torch.randn(2, 3, 64, 64, generator=generator)
        return dict(BatchEncoding({"input_ids": ids, "pixel_values": images}))
    if name == "pixel_values":
        frames = (config.num_frames,) if config.model_type == "videomae" else ()
        images = torch.randn(1, *frames, 3, config.image_size if frames else 64, 64, generator=generator)
        if config.model_type == "videomae":
            patches = (config.num_frames // config.tubelet_size) * (64 // config.patch_size) ** 2
            return {"pixel_values": images, "bool_masked_pos": torch.zeros(1, patches, dtype=torch.bool)}
        return {"pixel_values": images}
    if name == "input_values":
        if config.model_type == "audio-spectrogram-transformer":
            return {name: torch.randn(1, config.max_length, config.num_mel_bins, generator=generator)}
        channels = (1,) if config.model_type in ("dac", "encodec") else ()
        return {name: torch.randn(1, *channels, 2000, generator=generator)}
    if name == "input_features":
        frames = 2 * config.max_source_positions
        features = torch.randn(1, config.num_mel_bins, frames, generator=generator)
        return {name: features, "decoder_input_ids": ids[:1]}
    mask = torch.ones_like(ids)
    mask[1, TOKENS // 2 :] = 0
    given = {"input_ids": ids, "attention_mask": mask}
    if config.is_encoder_decoder:
        given["decoder_input_ids"] = ids[:, :8]
    if config.model_type == "fnet":
        del given["attention_mask"]
    return BatchEncoding(given)  # type: ignore[no-any-return]
