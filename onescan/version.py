"""The version of onescan."""

VERSION = "0.1.0"
