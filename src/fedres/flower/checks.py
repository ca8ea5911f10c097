"""Every upload is checked before it touches the model."""

import numpy as np

from fedres.core.messages import MessageError, Upload
from fedres.core.receipts import number_of
from fedres.flower.app_labels import unfit
from fedres.flower.app_settings import AppSettings
from fedres.flower.wire import Sent

LARGEST_RESIDUAL = 1e6  # far beyond any label; sums with it do not overflow


class RefusedError(ValueError):
    """An upload that is not used, and why, in a few words that reports count by."""


def largest_loss(settings: AppSettings) -> float:
    """The loss of the worst prediction that clipping lets through, and a little for rounding."""
    loss = settings.rule.loss.of_sum
    low, high = min(loss.clip[0], settings.label_low), max(loss.clip[1], settings.label_high)
    labels = np.array([settings.label_high, settings.label_low])
    return float(1.001 * loss.value(np.array([low, high]), labels).max())


def checked(sent: Sent, client: str, version: int, settings: AppSettings) -> Upload:
    """The upload, or a `RefusedError` with the reason; no model newer than `version` was sent."""
    rule = settings.rule
    if len(sent.upload) > settings.largest_upload:
        raise RefusedError("too large")
    try:
        upload = Upload.unpack(
            sent.upload, settings.width_global, rule.residual_span, settings.outputs
        )
    except MessageError as error:
        raise RefusedError(error.reason) from None
    values = upload.x_global if isinstance(upload.x_global, np.ndarray) else upload.x_global.data
    for wrong, reason in (
        (upload.client != number_of(client) or upload.round != sent.number, "wrong counter"),
        (upload.version > version, "model from the future"),
        (len(upload.y) > settings.rows_per_message, "too many rows"),
        (upload.bits not in (0, rule.residual_bits), "other residual bits"),  # 0: no local model
        (unfit(settings, upload.y).size > 0, "label"),
        (np.abs(values).max(initial=0) > settings.feature_limit, "feature too large"),
        (np.abs(upload.residual).max() > LARGEST_RESIDUAL, "residual"),
        (not 0 <= sent.loss <= largest_loss(settings), "loss"),
        ((sent.accuracy is not None) != bool(settings.classes), "accuracy"),
    ):
        if wrong:
            raise RefusedError(reason)
    return upload
