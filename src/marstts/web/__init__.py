"""The page that speaks by itself: a static folder for any web host, in which the model runs inside the browser."""
