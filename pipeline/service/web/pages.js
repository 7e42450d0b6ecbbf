// The pages of the search page, each in a module of its own that registers itself (views.js).

import "./concept.js";
import "./figures.js";
import "./alike.js";
import "./home.js";
import "./map.js";
import "./photos.js";
import "./queue.js";
