from longsum_jax.models.registry import get_family


def test_models_read_the_length_they_are_asked_about(scripts):
    hepos = scripts("hepos")
    bart = hepos.make_config(get_family("bart"), 10240, 4, "float32")
    assert (bart.max_source_length, bart.d_model) == (10240, 1024)
    assert (bart.cross_attention, bart.cross.hepos_stride) == ("hepos", 4)
    assert hepos.make_config(get_family("locost"), 10240, 1, "float32").cross_attention == "full"
