"""Small pictures inside a page: nothing that is linked to, nothing larger than it must be."""

import base64
import io
from dataclasses import dataclass, field

from PIL import Image

from truepair.features.pictures import PictureError, Place, open_picture


@dataclass
class Thumbnails:
    """Makes thumbnails for one page, each picture once, and not more than `most` of them.

    side: their longer side. Pictures that cannot be shown give the reason instead.
    """

    side: int = 160
    most: int = 400
    quality: int = 72
    _made: dict[str, "Thumbnail"] = field(default_factory=dict)

    def __call__(self, path: str | None) -> "Thumbnail":
        """The thumbnail of the picture at a path; None is data without pictures."""
        if not path:
            return Thumbnail()
        if path not in self._made:
            if len(self._made) >= self.most:
                return Thumbnail(missing="not shown, to keep the page small")
            self._made[path] = self._make(path)
        return self._made[path]

    def _make(self, path: str) -> "Thumbnail":
        try:
            picture, _ = open_picture(Place(path).read(), path, self.side)
        except PictureError as error:
            return Thumbnail(missing=f"{error.reason} ({error.detail})")
        picture.thumbnail((self.side, self.side), Image.Resampling.LANCZOS)
        buffer = io.BytesIO()
        picture.save(buffer, "WEBP", quality=self.quality, method=4)
        data = base64.b64encode(buffer.getvalue()).decode()
        return Thumbnail(f"data:image/webp;base64,{data}", *picture.size)


@dataclass(frozen=True)
class Thumbnail:
    """A picture as a data URI with its size in pixels; or why there is none (missing); or nothing at all."""

    uri: str | None = None
    width: int = 0
    height: int = 0
    missing: str | None = None
