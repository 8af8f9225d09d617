"""Small random models of transformers, one of each kind, as references for ours."""

from pathlib import Path

import numpy as np
import torch
import transformers as tf

TINY = {
    "vocab_size": 99,
    "d_model": 32,
    "encoder_layers": 3,
    "decoder_layers": 2,
    "encoder_attention_heads": 4,
    "decoder_attention_heads": 2,
    "encoder_ffn_dim": 40,
    "decoder_ffn_dim": 48,
    "max_position_embeddings": 160,
    "activation_function": "gelu",
    "init_std": 0.3,
}
LED_TINY = {key: value for key, value in TINY.items() if key != "max_position_embeddings"}
LED_TINY |= {"max_encoder_position_embeddings": 160, "max_decoder_position_embeddings": 64}
T5_TINY = {
    "vocab_size": 99,
    "d_model": 32,
    "d_kv": 8,
    "d_ff": 40,
    "num_layers": 3,
    "num_decoder_layers": 2,
    "num_heads": 4,
    "decoder_start_token_id": 0,
}
T5_TINY |= {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 20}
BERT_TINY = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
BERT_TINY |= {"intermediate_size": 40, "max_position_embeddings": 100, "initializer_range": 0.3}
DISTILBERT_TINY = {"vocab_size": 99, "dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 40}
DISTILBERT_TINY |= {"max_position_embeddings": 100, "initializer_range": 0.3}
ALBERT_TINY = BERT_TINY | {"embedding_size": 24, "num_hidden_layers": 3}
ELECTRA_TINY = BERT_TINY | {"embedding_size": 24}
LONGFORMER_TINY = BERT_TINY | {"attention_window": [8, 16], "pad_token_id": 1}
BIG_BIRD_TINY = BERT_TINY | {"block_size": 4, "num_random_blocks": 2, "hidden_act": "gelu_new"}
V1_1 = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}

GEMMA_TINY = {"vocab_size": 99, "hidden_size": 32, "intermediate_size": 40, "num_hidden_layers": 3}
GEMMA_TINY |= {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8}
GEMMA_TINY |= {"sliding_window": 6, "max_position_embeddings": 160, "initializer_range": 0.3}
GEMMA_TINY |= {"query_pre_attn_scalar": 12}
GEMMA_CAPS = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
# Windows longer than a text, and no soft caps.
GEMMA_WIDE = GEMMA_TINY | {"sliding_window": 150, "attention_bias": True}
GEMMA_WIDE |= {"attn_logit_softcapping": None, "final_logit_softcapping": None}

# T5Gemma 2: windows of an even and an odd size, two bases of rotary positions, and a token after
# images among the ids.
GEMMA_2_KINDS = {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]}
GEMMA_2_ROPE = {
    "full_attention": {"rope_type": "linear", "rope_theta": 1000.0, "factor": 4.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 50.0},
}
GEMMA_2_TINY = GEMMA_TINY | GEMMA_2_KINDS | {"rope_parameters": GEMMA_2_ROPE}
GEMMA_2_VISION = {"model_type": "siglip_vision_model", "hidden_size": 8, "num_hidden_layers": 1}
GEMMA_2_VISION |= {"intermediate_size": 8, "num_attention_heads": 1, "image_size": 16}
GEMMA_2_VISION |= {"patch_size": 1}
GEMMA_2_OUTER = {"vision_config": GEMMA_2_VISION, "eoi_token_index": 50}

# Sections of encoder-decoder models: an encoder, and decoders of its size and of another.
CROSS = {"is_decoder": True, "add_cross_attention": True}
BERT_SECTION = {"model_type": "bert"} | BERT_TINY
ROBERTA_SECTION = {"model_type": "roberta", "pad_token_id": 1} | BERT_TINY
NARROW = {"hidden_size": 24, "num_hidden_layers": 1, "num_attention_heads": 2}
ELECTRA_SECTION = {"model_type": "electra"} | ELECTRA_TINY
# Beams of transformers end in its padding unless that is token 0.
SPECIAL_TOKENS = {"pad_token_id": 1, "eos_token_id": 3, "decoder_start_token_id": 2}

# name -> (model class, config class, config values)
ENCODER_DECODERS = {
    "t5": (tf.T5ForConditionalGeneration, tf.T5Config, T5_TINY),
    "t5_v1_1": (tf.T5ForConditionalGeneration, tf.T5Config, T5_TINY | V1_1),
    "longt5_local": (
        tf.LongT5ForConditionalGeneration,
        tf.LongT5Config,
        T5_TINY | V1_1 | {"local_radius": 6},
    ),
    "longt5_global": (
        tf.LongT5ForConditionalGeneration,
        tf.LongT5Config,
        T5_TINY
        | V1_1
        | {"local_radius": 5, "global_block_size": 4, "encoder_attention_type": "transient-global"},
    ),
    "mt5": (tf.MT5ForConditionalGeneration, tf.MT5Config, T5_TINY),
    "umt5": (tf.UMT5ForConditionalGeneration, tf.UMT5Config, T5_TINY),
    # The feed-forward of UL2 and Flan-UL2.
    "ul2": (
        tf.T5ForConditionalGeneration,
        tf.T5Config,
        T5_TINY | V1_1 | {"feed_forward_proj": "gated-silu"},
    ),
    "t5gemma": (
        tf.T5GemmaForConditionalGeneration,
        tf.T5GemmaConfig,
        {
            "encoder": GEMMA_TINY | GEMMA_CAPS,
            "decoder": GEMMA_TINY
            | GEMMA_CAPS
            | {"hidden_size": 24, "num_hidden_layers": 2, "num_key_value_heads": 1},
            "vocab_size": 99,
        },
    ),
    "t5gemma_wide": (
        tf.T5GemmaForConditionalGeneration,
        tf.T5GemmaConfig,
        {
            "encoder": GEMMA_WIDE
            | {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 4.0}},
            "decoder": GEMMA_WIDE,
            "vocab_size": 99,
            "tie_word_embeddings": False,
        },
    ),
    "t5gemma2": (
        tf.T5Gemma2ForConditionalGeneration,
        tf.T5Gemma2Config,
        {
            "encoder": {"text_config": GEMMA_2_TINY, **GEMMA_2_OUTER},
            "decoder": GEMMA_2_TINY
            | {"num_key_value_heads": 1, "sliding_window": 5, "final_logit_softcapping": 3.0},
        },
    ),
    # Windows longer than a text, of an odd size, and separate embeddings.
    "t5gemma2_wide": (
        tf.T5Gemma2ForConditionalGeneration,
        tf.T5Gemma2Config,
        {
            "encoder": {"text_config": GEMMA_2_TINY | {"sliding_window": 151}, **GEMMA_2_OUTER},
            "decoder": GEMMA_2_TINY | {"sliding_window": 150, "attention_bias": True},
            "tie_word_embeddings": False,
        },
    ),
    "bert2bert": (
        tf.EncoderDecoderModel,
        tf.EncoderDecoderConfig,
        {
            "encoder": BERT_SECTION | {"num_hidden_layers": 3},
            "decoder": BERT_SECTION | CROSS,
            **SPECIAL_TOKENS,
        },
    ),
    "longformer2roberta": (
        tf.EncoderDecoderModel,
        tf.EncoderDecoderConfig,
        {
            "encoder": {"model_type": "longformer"} | LONGFORMER_TINY,
            "decoder": ROBERTA_SECTION | NARROW | CROSS | {"tie_word_embeddings": False},
            **SPECIAL_TOKENS,
        },
    ),
    "electra2electra": (
        tf.EncoderDecoderModel,
        tf.EncoderDecoderConfig,
        {"encoder": ELECTRA_SECTION, "decoder": ELECTRA_SECTION | CROSS, **SPECIAL_TOKENS},
    ),
    "bart": (tf.BartForConditionalGeneration, tf.BartConfig, TINY | {"scale_embedding": True}),
    "mbart": (
        tf.MBartForConditionalGeneration,
        tf.MBartConfig,
        TINY | {"scale_embedding": True, "decoder_start_token_id": 7},
    ),
    # As BARThez: no languages, and embeddings that are not scaled.
    "barthez": (tf.MBartForConditionalGeneration, tf.MBartConfig, TINY),
    "pegasus": (
        tf.PegasusForConditionalGeneration,
        tf.PegasusConfig,
        TINY | {"activation_function": "relu", "scale_embedding": True},
    ),
    # Stored position tables that are not the sinusoids.
    "pegasus_tables": (
        tf.PegasusForConditionalGeneration,
        tf.PegasusConfig,
        TINY | {"activation_function": "relu", "scale_embedding": True},
    ),
    "pegasus_x": (
        tf.PegasusXForConditionalGeneration,
        tf.PegasusXConfig,
        TINY | {"block_size": 8, "num_global_tokens": 3},
    ),
    "led": (tf.LEDForConditionalGeneration, tf.LEDConfig, LED_TINY | {"attention_window": 8}),
    "led_windows": (
        tf.LEDForConditionalGeneration,
        tf.LEDConfig,
        LED_TINY | {"attention_window": [4, 8, 16]},
    ),
    "bigbird_pegasus": (
        tf.BigBirdPegasusForConditionalGeneration,
        tf.BigBirdPegasusConfig,
        TINY | {"block_size": 4, "num_random_blocks": 2, "activation_function": "gelu_new"},
    ),
}
MODERNBERT_TINY = BERT_TINY | {
    "num_hidden_layers": 4,
    "local_attention": 12,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "cls_token_id": 1,
    "eos_token_id": 2,
    "sep_token_id": 2,
}
# Everything that published models leave out.
MODERNBERT_FULL = MODERNBERT_TINY | {
    "norm_bias": True,
    "attention_bias": True,
    "mlp_bias": True,
    "classifier_bias": True,
    "classifier_pooling": "mean",
    "layer_types": ["sliding_attention", "full_attention"] * 2,
    "num_labels": 3,
}
DEBERTA_TINY = {
    **BERT_TINY,
    "type_vocab_size": 0,
    "relative_attention": True,
    "position_buckets": 32,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "position_biased_input": False,
    "max_position_embeddings": 128,
}

ENCODERS = {
    "bert": (tf.BertForMaskedLM, tf.BertConfig, BERT_TINY),
    "bert_labels": (tf.BertForSequenceClassification, tf.BertConfig, BERT_TINY | {"num_labels": 3}),
    "bert_states": (tf.BertModel, tf.BertConfig, BERT_TINY),
    "roberta": (tf.RobertaForMaskedLM, tf.RobertaConfig, BERT_TINY),
    "roberta_labels": (
        tf.RobertaForSequenceClassification,
        tf.RobertaConfig,
        BERT_TINY | {"num_labels": 3},
    ),
    "xlm_roberta": (tf.XLMRobertaForMaskedLM, tf.XLMRobertaConfig, BERT_TINY),
    "camembert": (tf.CamembertForMaskedLM, tf.CamembertConfig, BERT_TINY),
    "camembert_labels": (
        tf.CamembertForSequenceClassification,
        tf.CamembertConfig,
        BERT_TINY | {"num_labels": 3},
    ),
    "modernbert": (tf.ModernBertForMaskedLM, tf.ModernBertConfig, MODERNBERT_TINY),
    "modernbert_labels": (
        tf.ModernBertForSequenceClassification,
        tf.ModernBertConfig,
        MODERNBERT_FULL,
    ),
    "modernbert_states": (tf.ModernBertModel, tf.ModernBertConfig, MODERNBERT_TINY),
    "deberta": (tf.DebertaV2ForMaskedLM, tf.DebertaV2Config, DEBERTA_TINY),
    "deberta_labels": (
        tf.DebertaV2ForSequenceClassification,
        tf.DebertaV2Config,
        DEBERTA_TINY | {"num_labels": 3, "pooler_hidden_act": "tanh"},
    ),
    "deberta_states": (
        tf.DebertaV2Model,
        tf.DebertaV2Config,
        # Distances beyond the last bucket, and the default of the farthest.
        DEBERTA_TINY | {"position_buckets": 8, "max_relative_positions": 20},
    ),
    "mpnet": (tf.MPNetForMaskedLM, tf.MPNetConfig, BERT_TINY),
    "mpnet_labels": (
        tf.MPNetForSequenceClassification,
        tf.MPNetConfig,
        BERT_TINY | {"num_labels": 3},
    ),
    "mpnet_states": (
        tf.MPNetModel,
        tf.MPNetConfig,
        BERT_TINY | {"vocab_size": 300, "max_position_embeddings": 160},
    ),
    "distilbert": (tf.DistilBertForMaskedLM, tf.DistilBertConfig, DISTILBERT_TINY),
    "distilbert_labels": (
        tf.DistilBertForSequenceClassification,
        tf.DistilBertConfig,
        DISTILBERT_TINY | {"num_labels": 3},
    ),
    "electra": (tf.ElectraForMaskedLM, tf.ElectraConfig, ELECTRA_TINY),
    "electra_labels": (
        tf.ElectraForSequenceClassification,
        tf.ElectraConfig,
        ELECTRA_TINY | {"embedding_size": 32, "num_labels": 3},
    ),
    "albert": (tf.AlbertForMaskedLM, tf.AlbertConfig, ALBERT_TINY),
    "albert_labels": (
        tf.AlbertForSequenceClassification,
        tf.AlbertConfig,
        ALBERT_TINY | {"num_labels": 3},
    ),
    "albert_states": (tf.AlbertModel, tf.AlbertConfig, ALBERT_TINY),
    "longformer": (tf.LongformerForMaskedLM, tf.LongformerConfig, LONGFORMER_TINY),
    "longformer_labels": (
        tf.LongformerForSequenceClassification,
        tf.LongformerConfig,
        LONGFORMER_TINY | {"num_labels": 3},
    ),
    "big_bird": (tf.BigBirdForMaskedLM, tf.BigBirdConfig, BIG_BIRD_TINY),
    "big_bird_labels": (
        tf.BigBirdForSequenceClassification,
        tf.BigBirdConfig,
        BIG_BIRD_TINY | {"num_labels": 3, "rescale_embeddings": True},
    ),
    "big_bird_states": (
        tf.BigBirdModel,
        tf.BigBirdConfig,
        BIG_BIRD_TINY | {"attention_type": "original_full"},
    ),
}
# The decoder reads the source, too.
READERS = {
    "bart_labels": (tf.BartForSequenceClassification, tf.BartConfig, TINY | {"num_labels": 3}),
    "bart_answers": (tf.BartForQuestionAnswering, tf.BartConfig, TINY),
    "mbart_labels": (
        tf.MBartForSequenceClassification,
        tf.MBartConfig,
        TINY | {"scale_embedding": True, "num_labels": 3},
    ),
    "mbart_answers": (tf.MBartForQuestionAnswering, tf.MBartConfig, TINY),
    "led_answers": (
        tf.LEDForQuestionAnswering,
        tf.LEDConfig,
        LED_TINY | {"attention_window": 8},
    ),
    "bigbird_pegasus_labels": (
        tf.BigBirdPegasusForSequenceClassification,
        tf.BigBirdPegasusConfig,
        TINY
        | {"block_size": 4, "num_random_blocks": 2, "activation_function": "gelu_new"}
        | {"num_labels": 3, "pad_token_id": 1, "eos_token_id": 2},  # those of the others
    ),
    "bigbird_pegasus_answers": (
        tf.BigBirdPegasusForQuestionAnswering,
        tf.BigBirdPegasusConfig,
        TINY | {"block_size": 4, "num_random_blocks": 2, "activation_function": "gelu_new"},
    ),
}
# Tokens see no later ones.
DECODERS = {
    "bert_causal": (tf.BertLMHeadModel, tf.BertConfig, BERT_TINY | {"is_decoder": True}),
    "roberta_causal": (tf.RobertaForCausalLM, tf.RobertaConfig, BERT_TINY | {"is_decoder": True}),
    "xlm_roberta_causal": (
        tf.XLMRobertaForCausalLM,
        tf.XLMRobertaConfig,
        BERT_TINY | {"is_decoder": True},
    ),
    "camembert_causal": (
        tf.CamembertForCausalLM,
        tf.CamembertConfig,
        BERT_TINY | {"is_decoder": True},
    ),
    "electra_causal": (
        tf.ElectraForCausalLM,
        tf.ElectraConfig,
        ELECTRA_TINY | {"is_decoder": True},
    ),
    "big_bird_causal": (
        tf.BigBirdForCausalLM,
        tf.BigBirdConfig,
        BIG_BIRD_TINY | {"is_decoder": True, "attention_type": "original_full"},
    ),
}
# Other heads, of which each is a family's own: name -> (family, model class of the head).
HEADS = {
    "bert_answers": ("bert", tf.BertForQuestionAnswering),
    "bert_tokens": ("bert_labels", tf.BertForTokenClassification),
    "bert_choices": ("bert", tf.BertForMultipleChoice),
    "roberta_answers": ("roberta", tf.RobertaForQuestionAnswering),
    "roberta_tokens": ("roberta_labels", tf.RobertaForTokenClassification),
    "roberta_choices": ("roberta", tf.RobertaForMultipleChoice),
    "xlm_roberta_labels": ("xlm_roberta", tf.XLMRobertaForSequenceClassification),
    "xlm_roberta_answers": ("xlm_roberta", tf.XLMRobertaForQuestionAnswering),
    "xlm_roberta_tokens": ("xlm_roberta", tf.XLMRobertaForTokenClassification),
    "xlm_roberta_choices": ("xlm_roberta", tf.XLMRobertaForMultipleChoice),
    "camembert_answers": ("camembert", tf.CamembertForQuestionAnswering),
    "camembert_tokens": ("camembert_labels", tf.CamembertForTokenClassification),
    "camembert_choices": ("camembert", tf.CamembertForMultipleChoice),
    "modernbert_answers": ("modernbert", tf.ModernBertForQuestionAnswering),
    "modernbert_tokens": ("modernbert_labels", tf.ModernBertForTokenClassification),
    "modernbert_choices": ("modernbert", tf.ModernBertForMultipleChoice),
    "deberta_answers": ("deberta", tf.DebertaV2ForQuestionAnswering),
    "deberta_tokens": ("deberta_labels", tf.DebertaV2ForTokenClassification),
    "deberta_choices": ("deberta", tf.DebertaV2ForMultipleChoice),
    "mpnet_answers": ("mpnet", tf.MPNetForQuestionAnswering),
    "mpnet_tokens": ("mpnet_labels", tf.MPNetForTokenClassification),
    "mpnet_choices": ("mpnet", tf.MPNetForMultipleChoice),
    "distilbert_answers": ("distilbert", tf.DistilBertForQuestionAnswering),
    "distilbert_tokens": ("distilbert_labels", tf.DistilBertForTokenClassification),
    "distilbert_choices": ("distilbert", tf.DistilBertForMultipleChoice),
    "electra_answers": ("electra", tf.ElectraForQuestionAnswering),
    "electra_tokens": ("electra", tf.ElectraForTokenClassification),
    "electra_choices": ("electra", tf.ElectraForMultipleChoice),
    "albert_answers": ("albert", tf.AlbertForQuestionAnswering),
    "albert_tokens": ("albert_labels", tf.AlbertForTokenClassification),
    "albert_choices": ("albert", tf.AlbertForMultipleChoice),
    "longformer_answers": ("longformer", tf.LongformerForQuestionAnswering),
    "longformer_tokens": ("longformer_labels", tf.LongformerForTokenClassification),
    "longformer_choices": ("longformer", tf.LongformerForMultipleChoice),
    "big_bird_answers": ("big_bird", tf.BigBirdForQuestionAnswering),
    "big_bird_tokens": ("big_bird_labels", tf.BigBirdForTokenClassification),
    "big_bird_choices": ("big_bird", tf.BigBirdForMultipleChoice),
}
ENCODERS |= {
    name: (model_class, *ENCODERS[like][1:]) for name, (like, model_class) in HEADS.items()
}
ENCODERS |= DECODERS


# Models of which every day's tests have the outputs (tests/models/test_families.py).
STORED = {path.stem for path in (Path(__file__).parents[1] / "golden/families").glob("*.npz")}


def make_reference(name):
    """The model called ``name``, every parameter far from its initial value, so that wiring errors
    show."""
    model_class, config_class, values = (ENCODER_DECODERS | READERS | ENCODERS)[name]
    torch.manual_seed(len(name))
    model = model_class(config_class(**values)).eval()
    if name == "mbart":
        model.generation_config.forced_bos_token_id = 9  # the language, in mBART-50
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            if "embed_positions" in key and name == "pegasus_tables":
                parameter.add_(0.3 * torch.randn_like(parameter))
            if "embed_positions" in key and "pegasus" in name and "bigbird" not in name:
                continue  # sinusoids
            if parameter.ndim == 1:  # scales of norms around 1, biases around 0
                parameter.add_(0.3 * torch.randn_like(parameter))
            elif "relative_attention_bias" in key:
                parameter.normal_()
        for key, buffer in model.named_buffers():
            if key == "final_logits_bias":
                buffer.normal_()
    return model


def further_inputs(name, ids):
    """Global attention on the first token: our default for LED, with which it is meant to be used,
    and transformers' own for a Longformer that classifies, but not for its base."""
    if not name.startswith("led") and name != "longformer_labels":
        return {}
    mask = torch.zeros(ids.shape, dtype=torch.long)
    mask[:, 0] = 1
    return {"global_attention_mask": mask}


def unused_keys(name):
    """Arrays of transformers' class that it does not read: the pooler of a BigBird with a head, and
    the first bias of a vocabulary head whose output weights are not tied."""
    if name == "longformer2roberta":
        return {"decoder.lm_head.bias"}
    if name not in ("big_bird", "big_bird_labels", "big_bird_tokens", "big_bird_causal"):
        return set()
    return {"bert.pooler.weight", "bert.pooler.bias"}


def image_keys(keys):
    """Returns the keys of parts that read images, which this library leaves out."""
    parts = ("vision_tower", "multi_modal_projector")
    return {key for key in keys if any(part in key for part in parts)}


def in_files(key):
    """Returns the key of a tensor in the files that transformers writes."""
    return key.replace("encoder.text_model.", "encoder.")


def assert_close(ours, theirs):
    """float32 of the same shape, and off by no more than 1e-5 of the largest value, or of 1: small
    logits are sums of larger terms."""
    ours, theirs = np.asarray(ours), np.asarray(theirs)
    assert ours.dtype == np.float32
    assert ours.shape == theirs.shape
    assert np.abs(ours - theirs).max() <= 1e-5 * max(1.0, np.abs(theirs).max())
