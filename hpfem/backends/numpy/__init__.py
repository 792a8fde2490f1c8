"""The readable reference backend: batched matrix products over chunks of elements, elements fastest."""
