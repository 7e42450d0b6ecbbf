"""When, with what and where photos were taken, from EXIF: fields of the photos, for filters."""
